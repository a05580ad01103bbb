"""What is the text about along the way?"""
